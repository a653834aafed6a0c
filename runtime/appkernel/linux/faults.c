/* Page faults of programs that are out: Linux handles them as it would for a device that uses a
 * process's address space. What it would answer with a signal is not decided here: the program comes
 * home and runs into it there. */
#include <asm/trap_pf.h>
#include <linux/mm.h>

#include "fettle_smp.h"

static bool may_execute(struct mm_struct *mm, unsigned long address)
{
    struct vm_area_struct *area = find_vma(mm, address);
    return area && area->vm_start <= address && area->vm_flags & VM_EXEC;
}

/* 0 if the program can go on. */
int fault_handle(struct space *space, const struct thread *thread)
{
    struct mm_struct *mm = current->mm;
    unsigned long address = thread->address;
    bool unlocked = false;
    int error = 0;
    if (address >= TASK_SIZE_MAX || thread->error & (X86_PF_RSVD | X86_PF_PK))
        return -EFAULT;
    mmap_read_lock(mm);
    if (thread->error & X86_PF_INSTR && !may_execute(mm, address))
        error = -EFAULT;
    if (!error)
        error = fixup_user_fault(mm, address,
                                 FAULT_FLAG_USER | (thread->error & X86_PF_WRITE ? FAULT_FLAG_WRITE : 0),
                                 &unlocked);
    mmap_read_unlock(mm);
    if (!error)
        space_follow(space, mm, address);
    return error;
}
