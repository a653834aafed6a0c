/* The application kernel, as the module carries it. */
    .section .rodata, "a"
    .globl fettle_image, fettle_image_end
    .balign 4096
fettle_image:
    .incbin FETTLE_IMAGE
fettle_image_end:
    .section .note.GNU-stack, "", @progbits
