//! Tells the service manager how the runner does, as `sd_notify(3)` has it: ready, stopping, a line of
//! status, and signs of life for its watchdog.
//!
//! Speaks to the socket that `NOTIFY_SOCKET` names, from a thread of its own: a manager that does not listen holds
//! nothing up. Without the variable nothing is said.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use sd_notify::NotifyState;

use crate::clock::monotonic;
use crate::vitals::{Vitals, Watch};
use crate::worker::Worker;

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

    /// Keeps the status true, tells of loops that stand still, and gives signs of life: one only when every loop has gone on
    /// since the one before. Before the runner serves it only tells of loops. Never returns.
    pub(crate) async fn watch(&self, worker: &Worker, serving: bool) {
        // Four looks a period: a busy machine may delay some of them.
        let every = self.watchdog.map_or(LOOK_EVERY, |period| (period / 4).min(LOOK_EVERY));
        let mut watch = Watch::default();
        let mut said = String::new();
        loop {
            tokio::time::sleep(every).await;
            let alive = self.all_is_well(&mut watch, &worker.config.vitals);
            if !serving {
                continue;
            }
            if alive {
                self.tell(News::Alive);
            }
            let status = status_of(worker);
            if !worker.is_stopping() && status != said && self.tell(News::Status(status.clone())) {
                said = status;
            }
        }
    }

    /// Whether a sign of life is due.
    fn all_is_well(&self, watch: &mut Watch, vitals: &Vitals) -> bool {
        let signs = vitals.signs();
        for stuck in watch.stuck(&signs, monotonic()) {
            let (name, seconds) = (stuck.name, stuck.since.as_secs());
            if stuck.outside {
                tracing::warn!(
                    name,
                    seconds,
                    "a loop of the runner waits for the file system or the compiler; the others go on"
                );
            } else {
                tracing::error!(
                    name,
                    seconds,
                    "a loop of the runner stands still: the runner should be restarted"
                );
            }
        }
        self.watchdog.is_some() && watch.all_went_on(&signs)
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
