//! The dynamic loader: where it can be made to report, and its list of objects.

use fettle_image::{Image, LinkAddr, unversioned};
use fettle_isa::jump;
use fettle_live::{DlopenHook, LiveAddr, Patch, Purpose, Region};
use fettle_types::LoadBias;

use crate::room::{AddressSpace, find_lasting_room_beside};

use super::layout::{CODE, CODE_LEN, DATA, REGIONS_LEN};

/// Where a dlopen hook goes in a process, near its loader, and the patch that leads there.
pub struct HookSite {
    /// The dlopen hook.
    pub dlopen_hook: DlopenHook,
    /// Its code, and its table with room for unwinders' behind it.
    pub regions: [Region; 2],
    /// That room.
    pub regions_at: LiveAddr,
    /// The loader's `r_debug`, which holds its list of libraries.
    pub r_debug: LiveAddr,
    /// Leads the loader there.
    pub jump: Patch,
}

/// A dynamic loader's places.
pub struct Loader {
    pub(super) image: Image,
    /// The empty function that it calls after each change.
    debug_state: LinkAddr,
    /// Its `struct r_debug`.
    pub(super) r_debug: LinkAddr,
    /// `_dl_find_object`, if it is here.
    pub(super) find_object: Option<LinkAddr>,
}

/// The address of a symbol, whatever its version.
pub(super) fn symbol(image: &Image, name: &str) -> Option<LinkAddr> {
    image.symbols().iter().find(|s| unversioned(&s.name) == name).map(|s| s.addr)
}

// struct r_debug: version, list, function, state, loader; since glibc 2.35 another namespace's.
pub(super) const R_MAP: usize = 8;

pub(super) const R_STATE: u64 = 24;

pub(super) const R_NEXT: usize = 40;

impl Loader {
    /// Finds what dlopen hooks need.
    ///
    /// # Errors
    ///
    /// In words, what is missing.
    pub fn of(image: Image) -> Result<Loader, String> {
        let debug_state =
            symbol(&image, "_dl_debug_state").ok_or("its loader tells debuggers nothing")?;
        let r_debug =
            symbol(&image, "_r_debug").ok_or("its loader does not show its list of libraries")?;
        let find_object = symbol(&image, "_dl_find_object");
        let empty = image
            .read(debug_state, 16)
            .is_some_and(|bytes| is_empty_function(bytes, debug_state.0));
        if !empty {
            return Err("its loader's function for debuggers is not an empty one".to_owned());
        }
        Ok(Loader { image, debug_state, r_debug, find_object })
    }

    /// Finds an address-space gap for a dlopen hook in a process that has the loader with that load bias; `alive`
    /// is where it sees whether a tracer is alive.
    ///
    /// # Errors
    ///
    /// When there is no room.
    pub fn hook_site(
        &self,
        bias: LoadBias,
        alive: u64,
        space: AddressSpace<'_>,
    ) -> Result<HookSite, String> {
        let no_room = "no room near its loader";
        let data_len = DlopenHook::TABLE_LEN + REGIONS_LEN;
        let code = find_lasting_room_beside(&self.image, bias, CODE_LEN + data_len, space)
            .ok_or(no_room)?;
        let code = code + bias;
        let (table, debug_state) = (code.offset(CODE_LEN), self.debug_state + bias);
        let after = jump::near(debug_state.0, code.0).ok_or(no_room)?.to_vec();
        let before = self.image.read(self.debug_state, after.len()).ok_or(no_room)?.to_vec();
        let r_debug = self.r_debug + bias;
        let region = |at, len, prot| Region { at, len, prot, shared: false };
        let (alive, state) = (LiveAddr(alive), Some(r_debug.offset(R_STATE)));
        Ok(HookSite {
            dlopen_hook: DlopenHook { code, table, alive, state },
            regions: [region(code, CODE_LEN, CODE), region(table, data_len, DATA)],
            regions_at: table.offset(DlopenHook::TABLE_LEN),
            r_debug,
            jump: Patch { at: debug_state, before, after, purpose: Purpose::Jump },
        })
    }
}

/// Whether code does nothing but return, with padding behind that a jump fits over.
pub(super) fn is_empty_function(bytes: &[u8], at: u64) -> bool {
    let bytes = match bytes.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]) {
        Some(rest) => rest,
        None => bytes,
    };
    // Functions begin at multiples of 16; long no-operations begin with 66, 0f 1f or 2e.
    let padding = bytes.get(1).is_some_and(|b| matches!(b, 0x66 | 0x0f | 0x2e | 0x90 | 0xcc));
    bytes.first() == Some(&0xc3) && at % 16 <= 11 && padding
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_functions() {
        let padded = [0xc3, 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x0f, 0x1f, 0x40, 0];
        assert!(is_empty_function(&padded, 0x2060));
        assert!(!is_empty_function(&padded, 0x206d));
        let marked = [0xf3, 0x0f, 0x1e, 0xfa, 0xc3, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0];
        assert!(is_empty_function(&marked, 0x2060));
        assert!(!is_empty_function(&[0xc3, 0x55, 0x48], 0x2060));
    }
}
