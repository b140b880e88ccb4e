//! A list that nearly always has one element, which costs no allocation.

/// A list in order.
#[derive(Debug)]
pub(crate) struct Few<T> {
    first: Option<T>,
    rest: Vec<T>,
}

impl<T> Few<T> {
    pub(crate) fn new() -> Few<T> {
        Few { first: None, rest: Vec::new() }
    }

    pub(crate) fn push(&mut self, item: T) {
        match self.first {
            None => self.first = Some(item),
            Some(_) => self.rest.push(item),
        }
    }
}

impl<T> IntoIterator for Few<T> {
    type Item = T;
    type IntoIter = std::iter::Chain<std::option::IntoIter<T>, std::vec::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_come_in_the_order_they_were_pushed_in() {
        let mut few = Few::new();
        (0..5).for_each(|n| few.push(n));
        assert_eq!(few.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert_eq!(Few::<u8>::new().into_iter().count(), 0);
    }
}
