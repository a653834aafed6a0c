/* Page faults of programs that are out: Linux handles them as it would for a device that uses a
 * process's address space. What it would answer with a signal is not decided here: the program comes
 * home and runs into it there.
 *
 * A fault costs a message each way, so memory that a program fills page after page is mapped ahead of
 * it: one page after the second fault in a row, then three, seven, fifteen. Nothing else is mapped
 * that the program did not touch.
 */
#include <asm/trap_pf.h>
#include <linux/mm.h>
#include <linux/userfaultfd_k.h>

#include "fettle_smp.h"

#define AHEAD_MOST 15

static bool may_execute(struct mm_struct *mm, unsigned long address)
{
    struct vm_area_struct *area = find_vma(mm, address);
    return area && area->vm_start <= address && area->vm_flags & VM_EXEC;
}

/* Where pages may be mapped ahead from an address on: in private memory without a file that only the
 * program itself fills. */
static unsigned long ahead_until(struct mm_struct *mm, unsigned long address)
{
    struct vm_area_struct *area = find_vma(mm, address);
    if (!area || area->vm_start > address || !vma_is_anonymous(area) || userfaultfd_armed(area))
        return 0;
    return area->vm_flags & (VM_SHARED | VM_IO | VM_PFNMAP) ? 0 : area->vm_end;
}

static void map_ahead(struct member *member, struct mm_struct *mm, unsigned long address)
{
    unsigned long page = (address & PAGE_MASK) + PAGE_SIZE, until = ahead_until(mm, address);
    bool unlocked = false;
    u32 i;
    member->ahead = page == member->next_page + PAGE_SIZE ? min(member->ahead * 2 + 1, AHEAD_MOST) : 0;
    for (i = 0; i < member->ahead && page < until && !unlocked; i++) {
        if (fixup_user_fault(mm, page, FAULT_FLAG_USER | FAULT_FLAG_WRITE, &unlocked))
            break;
        page += PAGE_SIZE;
    }
    member->next_page = page;
}

/* 0 if the program can go on. */
int fault_handle(struct member *member, const struct thread *thread)
{
    struct mm_struct *mm = current->mm;
    unsigned long address = thread->address;
    bool writes = thread->error & X86_PF_WRITE, unlocked = false;
    int error = 0;
    if (address >= TASK_SIZE_MAX || thread->error & (X86_PF_RSVD | X86_PF_PK))
        return -EFAULT;
    mmap_read_lock(mm);
    if (thread->error & X86_PF_INSTR && !may_execute(mm, address))
        error = -EFAULT;
    if (!error)
        error = fixup_user_fault(mm, address, FAULT_FLAG_USER | (writes ? FAULT_FLAG_WRITE : 0),
                                 &unlocked);
    if (!error && writes)
        map_ahead(member, mm, address);
    mmap_read_unlock(mm);
    if (!error)
        space_follow(member->space, mm, address);
    return error;
}
