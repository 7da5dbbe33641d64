//! Moving from each store to the other and back.

use crate::bed::Bed;
use crate::copying;
use crate::redis_bed::RedisBed;
use crate::sqlite_bed::SqliteBed;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_the_embedded_store_to_redis_and_back() {
    let (sqlite, redis) = (SqliteBed::start().await, RedisBed::start().await);
    copying::across(sqlite.store(), redis.store(), &sqlite.open("back").await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_redis_to_the_embedded_store_and_back() {
    let (sqlite, redis) = (SqliteBed::start().await, RedisBed::start().await);
    copying::across(redis.store(), sqlite.store(), &redis.open("back").await).await;
}
