//! Pages, and the address spaces of containers.
//!
//! A container starts with two pages: a page table and a page of its stack. It has no page directory then: each
//! CPU has a *global* directory, whose first entry is set to the page table of the container that runs. Only when a
//! container touches memory beyond the 2 MiB of that table does it get a directory of its own, copied from the
//! global one. The last entry of every directory maps the CPU's own page, so a container that runs on several CPUs
//! needs a directory for each of them. They are made when a CPU first enters; the first is the *owner's*, which
//! every fault keeps up to date, and the others copy entries from it when they miss them (a *spurious* fault).

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::cpu::{self, LOCAL, Local, MOST, local};
use crate::lock::{Class, Role, Spin};

pub const PAGE: usize = 4096;
/// What containers have to themselves: one directory's gigabyte.
pub const USER: usize = 0x8000_0000;
/// The top of a container's first stack, in the middle of the first table's 2 MiB.
pub const STACK_TOP: usize = USER + 0x10_0000;

const PRESENT: u64 = 1;
const WRITE: u64 = 2;
const FOR_USER: u64 = 4;
const LARGE: u64 = 0x80;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

type Table = [u64; 512];

static LOCK: Spin = Spin::new(Class::Pages, Role::Common);
/// The first free page; each holds the address of the next.
static mut FREE: usize = 0;
pub static FREE_PAGES: AtomicU64 = AtomicU64::new(0);
/// Faults that found their page mapped already: in the owner's directory, and in the table.
pub static SPURIOUS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

unsafe extern "C" {
    static text_end: u8;
    static image_end: u8;
}

fn table(address: usize) -> &'static mut Table {
    // SAFETY: all of memory is mapped where it is; tables are pages that only this module changes, under its lock
    // or by the one CPU that they are of.
    unsafe { &mut *(address as *mut Table) }
}

/// Takes all memory behind the image, up to `end`.
pub fn fill(end: usize) {
    let mut page = (&raw const image_end) as usize;
    while page + PAGE <= end {
        push(page);
        page += PAGE;
    }
}

/// A page full of zeros.
pub fn allocate() -> usize {
    let page = LOCK.with(pop);
    zero(page)
}

/// The same before there are locks: while a CPU starts, no other does anything.
fn allocate_early() -> usize {
    let page = pop();
    zero(page)
}

/// Does something while no other CPU can take or give a page.
pub fn with_pages(what: impl FnOnce()) {
    LOCK.with(what);
}

pub fn free(page: usize) {
    LOCK.with(|| push(page));
}

/// Under the lock, or early.
fn pop() -> usize {
    // SAFETY: nothing else changes the list.
    let page = unsafe { FREE };
    assert!(page != 0, "out of memory");
    // SAFETY: a free page holds the next one's address.
    unsafe { FREE = *(page as *const usize) };
    FREE_PAGES.fetch_sub(1, Ordering::Relaxed);
    page
}

/// Under the lock, or early.
fn push(page: usize) {
    // SAFETY: nothing uses the page any more, and nothing else changes the list.
    unsafe {
        *(page as *mut usize) = FREE;
        FREE = page;
    }
    FREE_PAGES.fetch_add(1, Ordering::Relaxed);
}

fn zero(page: usize) -> usize {
    // SAFETY: the page is the caller's now.
    unsafe {
        asm!("rep stosq", inout("rdi") page => _, inout("rcx") PAGE / 8 => _, in("rax") 0);
    }
    page
}

/// Makes this CPU's tables and goes over to them. The kernel's are the same for all.
pub fn map_local(id: u32) {
    let (root, pdpt, directory) = (allocate_early(), allocate_early(), allocate_early());
    let (local_table, page) = (allocate_early(), allocate_early());
    table(local_table)[0] = page as u64 | PRESENT | WRITE;
    table(directory)[511] = local_table as u64 | PRESENT | WRITE;
    table(root)[0] = pdpt as u64 | PRESENT | WRITE | FOR_USER;
    let kernel = kernel_directories();
    table(pdpt)[0] = kernel[0] as u64 | PRESENT | WRITE | FOR_USER;
    table(pdpt)[2] = directory as u64 | PRESENT | WRITE | FOR_USER;
    table(pdpt)[3] = kernel[1] as u64 | PRESENT | WRITE;
    // SAFETY: the new tables map everything that is in use where it was; the page is this CPU's own.
    unsafe {
        let mut new = Local::new(id);
        (new.pdpt, new.directory) = (pdpt, directory);
        (page as *mut Local).write(new);
        crate::remember_local(id, page);
        asm!("mov cr3, {}", in(reg) root);
    }
    assert!(size_of::<Local>() <= PAGE && local().id == id);
}

/// The directories of the first gigabyte and of the devices: made once, by the boot CPU.
fn kernel_directories() -> [usize; 2] {
    static mut MADE: [usize; 2] = [0; 2];
    // SAFETY: CPUs start one after the other.
    unsafe {
        if MADE[0] != 0 {
            return MADE;
        }
        let (low, devices) = (allocate_early(), allocate_early());
        let text = 0x10_0000..(&raw const text_end) as usize;
        for at in 0..512 {
            table(low)[at] = (at << 21) as u64 | PRESENT | WRITE | LARGE;
            table(devices)[at] = (0xc000_0000 + (at << 21)) as u64 | PRESENT | WRITE | LARGE | 0x18;
        }
        // The text of all programs, and constants, are for everyone to read, at the same addresses everywhere.
        for at in 0..=(text.end >> 21) {
            let small = allocate_early();
            for (n, entry) in table(small).iter_mut().enumerate() {
                let address = (at << 21) + n * PAGE;
                let rights = if text.contains(&address) { FOR_USER } else { WRITE };
                *entry = address as u64 | PRESENT | rights;
            }
            table(low)[at] = small as u64 | PRESENT | WRITE | FOR_USER;
        }
        MADE = [low, devices];
        MADE
    }
}

/// A container's memory.
#[derive(Clone, Copy)]
pub struct Space {
    /// The table of the first 2 MiB.
    first: usize,
    /// The owner's directory, if there is one.
    directory: usize,
    owner: u32,
    /// The other CPUs' directories.
    copies: [usize; MOST],
}

impl Space {
    pub const EMPTY: Space = Space { first: 0, directory: 0, owner: 0, copies: [0; MOST] };

    /// Two pages: the first table, and the top of the stack.
    pub fn new() -> Space {
        let (first, stack) = (allocate(), allocate());
        table(first)[(STACK_TOP - PAGE - USER) / PAGE] = stack as u64 | PRESENT | WRITE | FOR_USER;
        Space { first, ..Space::EMPTY }
    }

    /// Makes this CPU see the container.
    pub fn load(&mut self) {
        let local = local();
        let directory = self.directory_here();
        if directory == local.directory {
            table(directory)[0] = self.first as u64 | PRESENT | WRITE | FOR_USER;
        }
        table(local.pdpt)[2] = directory as u64 | PRESENT | WRITE | FOR_USER;
        // SAFETY: the kernel is mapped alike in all directories; this forgets what was seen before.
        unsafe { asm!("mov rax, cr3", "mov cr3, rax", out("rax") _) }
    }

    /// The directory that this CPU uses for the container.
    fn directory_here(&mut self) -> usize {
        let local = local();
        if self.directory == 0 {
            return local.directory;
        }
        if self.owner == local.id {
            return self.directory;
        }
        let copy = &mut self.copies[local.id as usize];
        if *copy == 0 {
            *copy = allocate();
            *table(*copy) = *table(self.directory);
            table(*copy)[511] = table(local.directory)[511];
        }
        *copy
    }

    /// Gives the container memory at an address, as a fault asks for it. Whether it may have some there.
    pub fn fault(&mut self, address: usize) -> bool {
        if !(USER..LOCAL).contains(&address) {
            return false;
        }
        let at = (address - USER) >> 21;
        if at > 0 && self.directory == 0 {
            let global = local().directory;
            self.directory = allocate();
            self.owner = local().id;
            *table(self.directory) = *table(global);
            table(self.directory)[0] = self.first as u64 | PRESENT | WRITE | FOR_USER;
            self.load();
        }
        let mut inner = self.first;
        if at > 0 {
            let here = self.directory_here();
            let owners = &mut table(self.directory)[at];
            if *owners == 0 {
                *owners = allocate() as u64 | PRESENT | WRITE | FOR_USER;
            } else if table(here)[at] == 0 {
                SPURIOUS[0].fetch_add(1, Ordering::Relaxed);
            }
            let entry = *owners;
            table(here)[at] = entry;
            inner = (entry & ADDRESS) as usize;
        }
        let entry = &mut table(inner)[(address / PAGE) % 512];
        if *entry == 0 {
            *entry = allocate() as u64 | PRESENT | WRITE | FOR_USER;
        } else {
            SPURIOUS[1].fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: forgets one address.
        unsafe { asm!("invlpg [{}]", in(reg) address) }
        true
    }

    /// Gives all of its pages back. No CPU may use it any more.
    pub fn release(&mut self) {
        let local = local();
        // This CPU must not find the tables that others will use for something else.
        table(local.directory)[0] = 0;
        table(local.pdpt)[2] = local.directory as u64 | PRESENT | WRITE | FOR_USER;
        // SAFETY: as in `load`.
        unsafe { asm!("mov rax, cr3", "mov cr3, rax", out("rax") _) }
        release_table(self.first);
        if self.directory != 0 {
            for at in 1..511 {
                let entry = table(self.directory)[at];
                if entry != 0 {
                    release_table((entry & ADDRESS) as usize);
                }
            }
            free(self.directory);
            self.copies.iter().filter(|copy| **copy != 0).for_each(|copy| free(*copy));
        }
        *self = Space::EMPTY;
    }
}

fn release_table(inner: usize) {
    for entry in *table(inner) {
        if entry != 0 {
            free((entry & ADDRESS) as usize);
        }
    }
    free(inner);
}

/// The address that the last page fault was for.
pub fn fault_address() -> usize {
    let address;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, cr2", out(reg) address) }
    address
}

/// Where memory ends, by what QEMU is started with.
pub const END: usize = 128 << 20;

pub fn set_up(id: u32) {
    map_local(id);
    cpu::set_up(id);
}
