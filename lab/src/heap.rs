//! Two heaps for the threads of one container, in user mode.
//!
//! The locked one has a list of free blocks and a semaphore. The lock-free one follows Michael (Scalable lock-free
//! dynamic memory allocation, 2004), with one size of blocks: each thread has an *active* superblock; a superblock's
//! *anchor* holds the index of its first free block and a tag in one word, which compare-and-swap changes. A block
//! names its superblock's descriptor, so that any thread can free it.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::call::number::{SEM_CLAIM, SEM_GIVE};
use crate::cpu::compute;
use crate::mem::USER;
use crate::user::call;

/// The semaphore of the locked heap.
pub const SEMAPHORE: u64 = 1;
/// What looking for a block costs in either heap.
const WORK: u64 = 150;
/// Where both heaps are.
const LOCKED: usize = USER + 0x100_0000;
const FREE: usize = USER + 0x200_0000;
const BLOCK: usize = 64;
const BLOCKS: u64 = 62;
/// A superblock: its descriptor in the first 64 bytes, then its blocks.
const SUPERBLOCK: usize = 4096;
/// Superblocks: one for each thread.
const MOST: u64 = 16;

fn word(address: usize) -> &'static AtomicU64 {
    // SAFETY: memory of the container that only the heaps use, as atomic words.
    unsafe { &*(address as *const AtomicU64) }
}

pub fn set_up() {
    for n in 0..256 {
        let block = LOCKED + BLOCK * (n + 1);
        word(block).store(word(LOCKED).load(Ordering::Relaxed), Ordering::Relaxed);
        word(LOCKED).store(block as u64, Ordering::Relaxed);
    }
    for superblock in 0..MOST as usize {
        let descriptor = FREE + superblock * SUPERBLOCK;
        for index in 0..BLOCKS {
            word(block(descriptor, index)).store(index + 1, Ordering::Relaxed);
        }
        // Tag 0, first free block 0.
        word(descriptor).store(0, Ordering::Release);
    }
}

fn block(descriptor: usize, index: u64) -> usize {
    descriptor + BLOCK * (index as usize + 1)
}

pub fn allocate(thread: u64, lock_free: bool) -> usize {
    if lock_free {
        let descriptor = FREE + (thread % MOST) as usize * SUPERBLOCK;
        compute(WORK);
        loop {
            let anchor = word(descriptor).load(Ordering::Acquire);
            let index = anchor & 0xffff;
            if index >= BLOCKS {
                // Every block is in use, which this program never needs.
                core::hint::spin_loop();
                continue;
            }
            let next = word(block(descriptor, index)).load(Ordering::Relaxed) & 0xffff;
            // The tag makes an anchor differ from what it was before others took and freed the same block.
            let changed = (anchor & !0xffff).wrapping_add(0x1_0000) | next;
            if word(descriptor)
                .compare_exchange(anchor, changed, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                return block(descriptor, index);
            }
        }
    }
    call(SEM_CLAIM, SEMAPHORE, 0, 0);
    compute(WORK);
    let block = word(LOCKED).load(Ordering::Relaxed) as usize;
    word(LOCKED).store(word(block).load(Ordering::Relaxed), Ordering::Relaxed);
    call(SEM_GIVE, SEMAPHORE, 0, 0);
    block
}

pub fn free(object: usize, lock_free: bool) {
    if lock_free {
        let descriptor = object & !(SUPERBLOCK - 1);
        let index = ((object - descriptor) / BLOCK - 1) as u64;
        compute(WORK / 2);
        loop {
            let anchor = word(descriptor).load(Ordering::Acquire);
            word(object).store(anchor & 0xffff, Ordering::Relaxed);
            let changed = (anchor & !0xffff).wrapping_add(0x1_0000) | index;
            if word(descriptor)
                .compare_exchange(anchor, changed, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                return;
            }
        }
    }
    call(SEM_CLAIM, SEMAPHORE, 0, 0);
    compute(WORK / 2);
    word(object).store(word(LOCKED).load(Ordering::Relaxed), Ordering::Relaxed);
    word(LOCKED).store(object as u64, Ordering::Relaxed);
    call(SEM_GIVE, SEMAPHORE, 0, 0);
}
