//! Proxies for tests without a runtime of their own: one for each link between a process and its server.

use tokio::runtime::Runtime;

use super::proxy::Proxy;

/// Proxies and the threads that they run on.
pub struct Links {
    runtime: Runtime,
    links: Vec<Proxy>,
}

impl Links {
    /// So many links to a port of the loopback address.
    pub fn to(server_port: u16, count: usize) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let links = (0..count).map(|_| runtime.block_on(Proxy::start(server_port))).collect();
        Self { runtime, links }
    }

    /// One of them.
    pub fn link(&self, number: usize) -> &Proxy {
        &self.links[number]
    }

    /// Does something to each.
    pub fn each(&self, act: impl Fn(&Proxy)) {
        self.links.iter().for_each(act);
    }

    /// The URL of the server behind a link.
    pub fn url(&self, number: usize) -> String {
        self.links[number].url()
    }
}
