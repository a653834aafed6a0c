//! A set that has one member nearly always.

/// None, one, or several without order.
#[derive(Clone, Debug, Default)]
pub(crate) enum SmallSet<T> {
    /// Empty.
    #[default]
    Nobody,
    /// The usual case, without memory of its own.
    One(T),
    /// Boxed, to keep the usual case small.
    #[expect(clippy::box_collection, reason = "a thin pointer: sections hold one of these each")]
    Several(Box<Vec<T>>),
}

impl<T> SmallSet<T> {
    /// The members.
    #[inline]
    pub fn all(&self) -> &[T] {
        match self {
            SmallSet::Nobody => &[],
            SmallSet::One(one) => std::slice::from_ref(one),
            SmallSet::Several(several) => several,
        }
    }

    /// Adds a member.
    pub fn add(&mut self, member: T) {
        *self = match std::mem::take(self) {
            SmallSet::Nobody => SmallSet::One(member),
            SmallSet::One(first) => SmallSet::Several(Box::new(vec![first, member])),
            SmallSet::Several(mut several) => {
                several.push(member);
                SmallSet::Several(several)
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows() {
        let mut small_set = SmallSet::default();
        for n in 1..=3 {
            small_set.add(n);
            assert_eq!(small_set.all().len(), n);
        }
        assert!(matches!(small_set, SmallSet::Several(several) if *several == [1, 2, 3]));
    }
}
