//! Bytecode as text, for people.

use super::Pool;

/// The names of opcodes up to `jsr_w`, in order.
const NAMES: &str = "nop aconst_null iconst_m1 iconst_0 iconst_1 iconst_2 iconst_3 iconst_4 iconst_5 \
    lconst_0 lconst_1 fconst_0 fconst_1 fconst_2 dconst_0 dconst_1 bipush sipush ldc ldc_w ldc2_w \
    iload lload fload dload aload iload_0 iload_1 iload_2 iload_3 lload_0 lload_1 lload_2 lload_3 \
    fload_0 fload_1 fload_2 fload_3 dload_0 dload_1 dload_2 dload_3 aload_0 aload_1 aload_2 aload_3 \
    iaload laload faload daload aaload baload caload saload istore lstore fstore dstore astore \
    istore_0 istore_1 istore_2 istore_3 lstore_0 lstore_1 lstore_2 lstore_3 fstore_0 fstore_1 \
    fstore_2 fstore_3 dstore_0 dstore_1 dstore_2 dstore_3 astore_0 astore_1 astore_2 astore_3 iastore \
    lastore fastore dastore aastore bastore castore sastore pop pop2 dup dup_x1 dup_x2 dup2 dup2_x1 \
    dup2_x2 swap iadd ladd fadd dadd isub lsub fsub dsub imul lmul fmul dmul idiv ldiv fdiv ddiv irem \
    lrem frem drem ineg lneg fneg dneg ishl lshl ishr lshr iushr lushr iand land ior lor ixor lxor iinc \
    i2l i2f i2d l2i l2f l2d f2i f2l f2d d2i d2l d2f i2b i2c i2s lcmp fcmpl fcmpg dcmpl dcmpg ifeq ifne \
    iflt ifge ifgt ifle if_icmpeq if_icmpne if_icmplt if_icmpge if_icmpgt if_icmple if_acmpeq if_acmpne \
    goto jsr ret tableswitch lookupswitch ireturn lreturn freturn dreturn areturn return getstatic \
    putstatic getfield putfield invokevirtual invokespecial invokestatic invokeinterface invokedynamic \
    new newarray anewarray arraylength athrow checkcast instanceof monitorenter monitorexit wide \
    multianewarray ifnull ifnonnull goto_w jsr_w";

/// The instructions of a method, each with where it is.
pub fn listing(bytes: &[u8], pool: &Pool) -> Vec<(usize, String)> {
    let names: Vec<&str> = NAMES.split_ascii_whitespace().collect();
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(&opcode) = bytes.get(at) {
        let name = names.get(usize::from(opcode)).copied().unwrap_or("?");
        let (operands, length) = operands(bytes, at, pool).unwrap_or_default();
        out.push((at, format!("{name} {operands}").trim_end().to_owned()));
        at += 1 + length;
    }
    out
}

/// The operands of the instruction at a place, and how many bytes they take.
fn operands(bytes: &[u8], at: usize, pool: &Pool) -> Option<(String, usize)> {
    let byte = |offset: usize| bytes.get(at + offset).copied();
    let half = |offset: usize| Some(u16::from_be_bytes([byte(offset)?, byte(offset + 1)?]));
    Some(match byte(0)? {
        0x10 => ((byte(1)? as i8).to_string(), 1),
        0x11 => ((half(1)? as i16).to_string(), 2),
        0x12 => (pool.text(u16::from(byte(1)?)), 1),
        0x13 | 0x14 | 0xb2..=0xb8 | 0xbb | 0xc0 => (pool.text(half(1)?), 2),
        0x15..=0x19 | 0x36..=0x3a => (byte(1)?.to_string(), 1),
        0xbc => (if byte(1)? == 10 { "int".into() } else { "long".into() }, 1),
        0x99..=0xa7 | 0xc6 | 0xc7 => ((at as i64 + i64::from(half(1)? as i16)).to_string(), 2),
        0xc4 => (format!("{:#04x} {}", byte(1)?, half(2)?), 3),
        0xaa | 0xab => switch(bytes, at)?,
        _ => (String::new(), 0),
    })
}

fn switch(bytes: &[u8], at: usize) -> Option<(String, usize)> {
    let word = |offset: usize| {
        let bytes = bytes.get(offset..offset + 4)?;
        Some(i32::from_be_bytes(bytes.try_into().ok()?))
    };
    let to = |offset: usize| Some(at as i64 + i64::from(word(offset)?));
    let start = (at + 4) & !3;
    let (mut text, mut cases) = (String::new(), Vec::new());
    let end = if bytes[at] == 0xaa {
        let (low, high) = (word(start + 4)?, word(start + 8)?);
        for (index, key) in (low..=high).enumerate() {
            cases.push((key, to(start + 12 + 4 * index)?));
        }
        start + 12 + 4 * cases.len()
    } else {
        for index in 0..word(start + 4)? as usize {
            cases.push((word(start + 8 + 8 * index)?, to(start + 12 + 8 * index)?));
        }
        start + 8 + 8 * cases.len()
    };
    for (key, target) in cases {
        text += &format!("{key}: {target}, ");
    }
    text += &format!("default: {}", to(start)?);
    Some((text, end - at - 1))
}
