//! ELF images: bytes in, values out.
