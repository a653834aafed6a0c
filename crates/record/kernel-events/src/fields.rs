//! Where the fields lie that the programs read, in the kernel that runs.

use fettle_btf::{Btf, BtfError, Field};

/// Declares the fields and how to look them up. Names after the first are what older or newer
/// kernels call it.
macro_rules! fields {
    ($($name:ident: $of:literal $($path:literal)|+;)*) => {
        /// Where fields lie.
        #[allow(missing_docs)] // Named after what they are in the kernel.
        #[derive(Clone, Copy, Debug)]
        pub struct Fields {
            $(pub $name: Field,)*
        }

        impl Fields {
            /// Looks all of them up.
            ///
            /// # Errors
            ///
            /// When one is missing.
            pub fn find(btf: &Btf) -> Result<Fields, BtfError> {
                Ok(Fields { $($name: first(btf, $of, &[$($path),+])?,)* })
            }
        }
    };
}

fields! {
    task_pid: "task_struct" "pid";
    task_tgid: "task_struct" "tgid";
    task_stack: "task_struct" "stack";
    task_state: "task_struct" "__state" | "state";
    task_name: "task_struct" "comm";
    task_files: "task_struct" "files";
    task_signal: "task_struct" "signal";
    task_exit_code: "task_struct" "exit_code";
    task_status: "task_struct" "thread_info.status";
    task_fs: "task_struct" "thread.fsbase";
    signal_live: "signal_struct" "live.counter";
    signal_group_exit_code: "signal_struct" "group_exit_code";
    files_fdt: "files_struct" "fdt";
    fdt_max_fds: "fdtable" "max_fds";
    fdt_fd: "fdtable" "fd";
    list_next: "list_head" "next";
    file_inode: "file" "f_inode";
    file_flags: "file" "f_flags";
    file_count: "file" "f_ref.refcnt.counter" | "f_count.counter";
    file_private: "file" "private_data";
    inode_mode: "inode" "i_mode";
    inode_number: "inode" "i_ino";
    inode_sb: "inode" "i_sb";
    sb_magic: "super_block" "s_magic";
    socket_sk: "socket" "sk";
    sk_family: "sock" "__sk_common.skc_family";
    sk_daddr: "sock" "__sk_common.skc_daddr";
    sk_saddr: "sock" "__sk_common.skc_rcv_saddr";
    sk_dport: "sock" "__sk_common.skc_dport";
    inet_sport: "inet_sock" "inet_sport";
    sk_v6_daddr: "sock" "__sk_common.skc_v6_daddr";
    sk_v6_saddr: "sock" "__sk_common.skc_v6_rcv_saddr";
    sk_type: "sock" "sk_type";
    tcp_mstamp: "tcp_sock" "tcp_mstamp";
    unix_peer: "unix_sock" "peer";
    regs_number: "pt_regs" "orig_ax";
    regs_0: "pt_regs" "di";
    regs_1: "pt_regs" "si";
    regs_2: "pt_regs" "dx";
    regs_3: "pt_regs" "r10";
    bprm_filename: "linux_binprm" "filename";
    request_sector: "request" "__sector";
    request_bytes: "request" "__data_len";
    request_flags: "request" "cmd_flags";
    request_queue: "request" "q";
    queue_disk: "request_queue" "disk";
    disk_major: "gendisk" "major";
    disk_minor: "gendisk" "first_minor";
}

/// Fields of what is given to an `io_uring`.
#[derive(Clone, Copy, Debug)]
pub struct UringFields {
    /// What is to be done.
    pub opcode: Field,
    /// The ring.
    pub ring: Field,
    /// The ring's flags.
    pub flags: Field,
}

impl UringFields {
    /// Looks them up; kernels without `io_uring` have none.
    pub fn find(btf: &Btf) -> Option<UringFields> {
        Some(UringFields {
            opcode: btf.field("io_kiocb", "opcode").ok()?,
            ring: btf.field("io_kiocb", "ctx").ok()?,
            flags: btf.field("io_ring_ctx", "flags").ok()?,
        })
    }
}

fn first(btf: &Btf, of: &str, paths: &[&str]) -> Result<Field, BtfError> {
    let mut found = paths.iter().map(|path| btf.field(of, path));
    let first = found.next().expect("at least one name");
    first.or_else(|error| found.find_map(Result::ok).ok_or(error))
}

/// What a file's count is with a single reference: since Linux 6.13 it counts those beyond it.
pub fn single_reference(btf: &Btf) -> i32 {
    i32::from(btf.field("file", "f_ref.refcnt.counter").is_err())
}
