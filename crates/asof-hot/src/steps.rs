//! Where a process can die: the models stop a protocol at each of these points.

/// Called before every step of a protocol that other ends can see.
pub(crate) trait Steps {
    /// Whether the process is dead from here on.
    fn stop(&mut self) -> bool;
}

/// Runs to completion; compiles to nothing.
pub(crate) struct Whole;

impl Steps for Whole {
    #[inline(always)]
    fn stop(&mut self) -> bool {
        false
    }
}

/// Takes this many steps, then stops.
#[cfg(loom)]
pub(crate) struct DiesAfter(pub(crate) usize);

#[cfg(loom)]
impl Steps for DiesAfter {
    fn stop(&mut self) -> bool {
        let is_over = self.0 == 0;
        self.0 = self.0.saturating_sub(1);
        is_over
    }
}
