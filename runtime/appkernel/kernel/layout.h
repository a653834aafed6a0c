/* The numbers of shared.h that assembly needs; setup.c asserts that they agree. */
#define IMAGE_MAGIC 0x006c656e72656b61
#define TRAMPOLINE 0x8000
#define CPU_FRAME 0
#define CPU_CALLER 8
#define CPU_STACK 16
#define REGISTERS_CS 136
#define REGISTERS_VECTOR 124
#define VECTOR_CALL 0x100
#define VECTOR_LOWEST 0xf0
#define VECTOR_PAGE_FAULT 14
#define REGISTERS_IP 128
