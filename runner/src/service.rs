//! Tells the service manager how the runner does, as `sd_notify(3)` has it: ready, stopping, a line of
//! status, and signs of life for its watchdog.
//!
//! Speaks to the socket that `NOTIFY_SOCKET` names, from a thread of its own: a manager that does not listen holds
//! nothing up. Without the variable nothing is said.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use sd_notify::NotifyState;

use crate::worker::{Sign, Worker};

/// A look at the runner at least so often.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How much may wait to be said; what comes on top of it is left out.
const WAITING_MAX: usize = 16;
/// How long the end waits for the last word to be said.
const LAST_WORD: Duration = Duration::from_secs(1);

enum News {
    Status(String),
    Ready(String),
    Stopping(String),
    Alive,
    /// Everything before it is said: asks for a word back.
    Last(SyncSender<()>),
}

/// The way to the service manager, if there is one.
pub(crate) struct ServiceManager {
    news: Option<SyncSender<News>>,
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// Finds the manager by the variables that it sets.
    ///
    /// # Errors
    /// When its thread cannot be made.
    pub(crate) fn find() -> std::io::Result<Self> {
        if std::env::var_os("NOTIFY_SOCKET").is_none() {
            return Ok(Self { news: None, watchdog: None });
        }
        let (news, to_say) = sync_channel(WAITING_MAX);
        thread::Builder::new().name("service".to_owned()).spawn(move || say(&to_say))?;
        let watchdog = sd_notify::watchdog_enabled().filter(|period| !period.is_zero());
        Ok(Self { news: Some(news), watchdog })
    }

    /// A line for people, such as `systemctl status` shows.
    pub(crate) fn status(&self, line: impl Into<String>) {
        self.tell(News::Status(line.into()));
    }

    /// The runner serves.
    pub(crate) fn ready(&self, worker: &Worker) {
        self.tell(News::Ready(status_of(worker)));
    }

    /// The runner stops, gracefully.
    pub(crate) fn stopping(&self, running: usize) {
        self.tell(News::Stopping(format!("stopping; running: {running}")));
    }

    /// Waits, for a moment at most, until what was told is said: the process is about to end.
    pub(crate) fn last_word(&self) {
        if self.news.is_some() {
            let (word, said) = sync_channel(1);
            if self.tell(News::Last(word)) {
                let _ = said.recv_timeout(LAST_WORD);
            }
        }
    }

    /// False when it will not be said: there is no manager, or it does not listen.
    fn tell(&self, news: News) -> bool {
        self.news.as_ref().is_some_and(|to_say| to_say.try_send(news).is_ok())
    }

    /// Keeps the status true, and gives signs of life: one only when every loop has gone on since the
    /// one before. Never returns.
    pub(crate) async fn watch(&self, worker: &Worker) {
        // Four looks a period: a busy machine may delay some of them.
        let every = self.watchdog.map_or(LOOK_EVERY, |period| (period / 4).min(LOOK_EVERY));
        let mut watch = Watch::default();
        let mut said = String::new();
        loop {
            tokio::time::sleep(every).await;
            if self.watchdog.is_some() && watch.all_went_on(worker.signs()) {
                self.tell(News::Alive);
            }
            let status = status_of(worker);
            if !worker.is_stopping() && status != said && self.tell(News::Status(status.clone())) {
                said = status;
            }
        }
    }
}

/// On the thread: says what comes, until nobody is left to tell.
fn say(to_say: &Receiver<News>) {
    let mut complained = false;
    while let Ok(news) = to_say.recv() {
        let said = match &news {
            News::Status(line) => sd_notify::notify(&[NotifyState::Status(line)]),
            News::Ready(line) => sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(line)]),
            News::Stopping(line) => sd_notify::notify(&[NotifyState::Stopping, NotifyState::Status(line)]),
            News::Alive => sd_notify::notify(&[NotifyState::Watchdog]),
            News::Last(word) => {
                let _ = word.send(());
                Ok(())
            }
        };
        if let Err(error) = said
            && !std::mem::replace(&mut complained, true)
        {
            tracing::warn!(%error, "cannot tell the service manager how the runner does");
        }
    }
}

fn status_of(worker: &Worker) -> String {
    if worker.outage.is_on() {
        return "the store is away; trying on".to_owned();
    }
    let counts = worker.hand.counts();
    format!("serving; kinds: {}, running: {}, held: {}", worker.kinds().len(), counts.running, counts.held)
}

/// Remembers how far each loop was when all had gone on.
#[derive(Default)]
struct Watch {
    seen: [Option<u64>; 3],
}

impl Watch {
    /// Whether every loop has gone on since the last time that this was so, or is at rest.
    fn all_went_on(&mut self, signs: [Sign; 3]) -> bool {
        let steps = signs.map(|sign| match sign {
            Sign::Steps(steps) => Some(steps),
            Sign::AtRest => None,
        });
        let stuck = steps.iter().zip(&self.seen).any(|(now, then)| now.is_some() && now == then);
        for (then, now) in self.seen.iter_mut().zip(steps) {
            // One that rests has all of its next time.
            if !stuck || now.is_none() {
                *then = now;
            }
        }
        !stuck
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Sign::{AtRest, Steps};

    #[test]
    fn one_loop_that_stands_still_is_enough_to_give_no_sign() {
        let mut watch = Watch::default();
        assert!(watch.all_went_on([Steps(0), Steps(0), Steps(0)]));
        for (busy, steps) in (1..100).enumerate() {
            let stuck = busy % 3;
            let mut signs = [Steps(steps); 3];
            signs[stuck] = Steps(0);
            assert!(!Watch { seen: [Some(0); 3] }.all_went_on(signs), "loop {stuck}");
        }
        assert!(!watch.all_went_on([Steps(9), Steps(9), Steps(0)]));
        assert!(!watch.all_went_on([Steps(99), Steps(99), Steps(0)]));
        assert!(watch.all_went_on([Steps(99), Steps(99), Steps(1)]), "it was only slow");
    }

    #[test]
    fn a_loop_at_rest_is_not_stuck_and_begins_anew() {
        let mut watch = Watch::default();
        assert!(watch.all_went_on([Steps(1), Steps(1), Steps(5)]));
        assert!(watch.all_went_on([Steps(2), Steps(2), AtRest]));
        assert!(watch.all_went_on([Steps(3), Steps(3), Steps(5)]), "new work, a moment ago");
        assert!(!watch.all_went_on([Steps(4), Steps(4), Steps(5)]));
        assert!(!watch.all_went_on([Steps(3), Steps(9), AtRest]), "another one is stuck");
        assert!(watch.all_went_on([AtRest, AtRest, Steps(5)]));
    }
}
