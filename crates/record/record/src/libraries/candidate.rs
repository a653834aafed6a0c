//! A library that is about to get rewritten text.

use std::path::PathBuf;
use std::sync::Arc;

use fettle_image::LinkAddr;
use fettle_live::{FileMap, Region, Request};
use fettle_types::{LiveAddr, LoadBias, ModuleIndex};

use crate::modules::Placed;

use super::layout::{CODE, CONSTANTS};

#[derive(Clone)]
pub(super) struct Candidate {
    pub(super) link_map: u64,
    pub(super) dynamic: u64,
    pub(super) bias: LoadBias,
    pub(super) path: PathBuf,
    pub(super) module: ModuleIndex,
    pub(super) placed: Arc<Placed>,
    /// Its rewritten text is written into memory of the process's own, which could not open our file:
    /// another user's cannot, nor one that has given up rights.
    pub(super) given: bool,
}

impl Candidate {
    pub(super) fn live(&self, at: LinkAddr) -> LiveAddr {
        at + self.bias
    }

    /// Where its text goes, and its constants.
    pub(super) fn regions(&self) -> [Region; 2] {
        let Placed { linked, text_len, constants_len, .. } = &*self.placed;
        let region =
            |at, len: &u64, prot| Region { at: self.live(at), len: *len, prot, shared: false };
        [
            region(linked.text_at, text_len, CODE),
            region(linked.constants_at, constants_len, CONSTANTS),
        ]
    }

    pub(super) fn maps(&self) -> [Request; 2] {
        let mut offset = 0;
        self.regions().map(|Region { at: addr, len, prot, shared }| {
            let fd = self.placed.file.clone();
            let map = FileMap { fd, offset, len, addr, prot, shared, dont_dump: false };
            offset += len;
            Request::Map(map)
        })
    }
}
