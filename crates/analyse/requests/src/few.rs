//! A set that has one member nearly always.

/// None, one, or several without order.
#[derive(Clone, Debug, Default)]
pub(crate) enum Few<T> {
    /// Empty.
    #[default]
    Nobody,
    /// The usual case, without memory of its own.
    One(T),
    /// Boxed, to keep the usual case small.
    #[expect(clippy::box_collection, reason = "a thin pointer: sections hold one of these each")]
    Several(Box<Vec<T>>),
}

impl<T> Few<T> {
    /// The members.
    #[inline]
    pub fn all(&self) -> &[T] {
        match self {
            Few::Nobody => &[],
            Few::One(one) => std::slice::from_ref(one),
            Few::Several(several) => several,
        }
    }

    /// Adds a member.
    pub fn add(&mut self, member: T) {
        *self = match std::mem::take(self) {
            Few::Nobody => Few::One(member),
            Few::One(first) => Few::Several(Box::new(vec![first, member])),
            Few::Several(mut several) => {
                several.push(member);
                Few::Several(several)
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows() {
        let mut few = Few::default();
        for n in 1..=3 {
            few.add(n);
            assert_eq!(few.all().len(), n);
        }
        assert!(matches!(few, Few::Several(several) if *several == [1, 2, 3]));
    }
}
