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

    /// Where the setting was given, if it was.
    pub(super) fn origin(&self, key: &'static str) -> Option<String> {
        self.layers.find(key).map(|found| found.origin)
    }
}
