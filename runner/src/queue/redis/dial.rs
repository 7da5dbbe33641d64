//! Opening a connection to one server, and making sure that the scripts can work there.

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError};

use super::errors::store_error;
use crate::queue::StoreError;

/// The oldest major version of Redis that runs our scripts (script flags, errors as tables).
const VERSION_MIN: u32 = 7;

/// A connection without deadlines: those are the caller's. The client's own would fail single calls and keep the connection.
pub(super) async fn connect(client: &Client, place: &str) -> Result<MultiplexedConnection, StoreError> {
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .map_err(|error| store_error(&error, place))
}

/// A connection to a server on which the scripts can work.
///
/// # Errors
/// When it is out of reach, or refused, with the reason, before the scripts fail one by one.
pub(super) async fn dial(client: &Client, place: &str) -> Result<MultiplexedConnection, StoreError> {
    let mut connection = connect(client, place).await?;
    let Some(info) = info(&mut connection, "server", place).await? else { return Ok(connection) };
    let version = field(&info, "redis_version:").unwrap_or_default();
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_none_or(|major| major < VERSION_MIN) {
        return Err(StoreError::Refused(format!(
            "{place} runs Redis {version:?}: expected {VERSION_MIN}.0 or newer"
        )));
    }
    match field(&info, "redis_mode:") {
        Some("cluster") => Err(StoreError::Refused(format!(
            "{place} is a node of a Redis Cluster: expected a single Redis, clusters are not supported"
        ))),
        Some("sentinel") => Err(StoreError::Refused(format!(
            "{place} is a sentinel: expected a Redis; what is behind sentinels is named redis+sentinel://host:port/master-name"
        ))),
        _ => Ok(connection),
    }
}

/// The same, to a server that says that it is a primary.
///
/// # Errors
/// As [`dial`], and [`StoreError::NotReady`] when it is a replica.
pub(super) async fn dial_primary(client: &Client, place: &str) -> Result<MultiplexedConnection, StoreError> {
    let mut connection = dial(client, place).await?;
    let info = info(&mut connection, "replication", place).await?;
    match info.as_deref().and_then(|info| field(info, "role:")) {
        Some(role) if role != "master" => Err(StoreError::NotReady(format!("{place} is a replica"))),
        _ => Ok(connection),
    }
}

/// A section of what a server says of itself; `None` when the user may not look, who still may work.
async fn info(
    connection: &mut MultiplexedConnection,
    section: &str,
    place: &str,
) -> Result<Option<String>, StoreError> {
    let asked: Result<String, RedisError> = redis::cmd("INFO").arg(section).query_async(connection).await;
    match asked {
        Ok(info) => Ok(Some(info)),
        Err(error) if error.code() == Some("NOPERM") => Ok(None),
        Err(error) => Err(store_error(&error, place)),
    }
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}
