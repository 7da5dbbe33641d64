//! Takes settings out of the layers one by one and collects what is wrong with them.

use super::{Layers, Problems};

pub(super) struct Reader<'a> {
    layers: &'a Layers,
    pub(super) problems: Problems,
}

impl<'a> Reader<'a> {
    pub(super) fn new(layers: &'a Layers) -> Self {
        Self { layers, problems: layers.strays().clone() }
    }

    /// The setting, if somebody gave it and it is right; what is wrong with it is noted.
    pub(super) fn take<T>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let found = self.layers.find(key)?;
        match parse(&found.text) {
            Ok(value) => Some(value),
            Err(message) => {
                self.problems.push(format!("{}: {message}", found.origin));
                None
            }
        }
    }

    /// As [`take`](Self::take), with a problem when nobody gave it: `None` always comes with one.
    pub(super) fn require<T>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, String>,
        missing: &str,
    ) -> Option<T> {
        if self.layers.find(key).is_none() {
            self.problems.push(missing.to_owned());
            return None;
        }
        self.take(key, parse)
    }
}
