//! The store in memory passes the suite.

use onceward_testkit::memory::MemoryFixture;

onceward_testkit::store_suite!(MemoryFixture::new().await?);
