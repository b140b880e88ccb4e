//! When something that failed for want of room is tried again.

/// Looks that are passed over after a first failure, and at most: twice as many after each further one.
const FIRST: u32 = 8;
const MOST: u32 = 512;

/// Paces attempts at something that needs room, by the looks at how much there is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Retry {
    /// What was free when it failed last; none: it did not.
    failed_with: Option<u64>,
    pause: u32,
    left: u32,
}

impl Retry {
    /// A look that finds `free` bytes: whether to try. After a failure that is so when there is more than there was then, or
    /// after a pause.
    pub(crate) fn look(&mut self, free: u64) -> bool {
        match self.failed_with {
            Some(then) if free <= then => {
                self.left = self.left.saturating_sub(1);
                self.left == 0
            }
            _ => true,
        }
    }

    /// What was tried with `free` bytes came to an end.
    pub(crate) fn ended(&mut self, free: u64, well: bool) {
        if well {
            *self = Retry::default();
            return;
        }
        self.pause = if self.pause == 0 { FIRST } else { (self.pause * 2).min(MOST) };
        (self.failed_with, self.left) = (Some(free), self.pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks until it is tried again.
    fn looks(retry: &mut Retry, free: u64) -> u32 {
        (1..).find(|_| retry.look(free)).unwrap()
    }

    #[test]
    fn what_failed_is_tried_again_after_longer_and_longer_pauses_or_when_there_is_more_room() {
        let mut retry = Retry::default();
        assert_eq!(looks(&mut retry, 100), 1);
        let mut pauses = Vec::new();
        for _ in 0..8 {
            retry.ended(100, false);
            pauses.push(looks(&mut retry, 100));
        }
        assert_eq!(pauses, [8, 16, 32, 64, 128, 256, 512, 512]);
        retry.ended(100, false);
        assert!(!retry.look(100) && !retry.look(90) && retry.look(101), "there is more room");
        retry.ended(101, true);
        assert_eq!(looks(&mut retry, 1), 1);
        retry.ended(100, false);
        assert_eq!(looks(&mut retry, 100), 8, "a success begins anew");
    }
}
