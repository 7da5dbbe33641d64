//! Writes a receipt for an order: `{"order": 7, "items": [{"name": "tea", "cents": 450, "count": 2}]}`

use std::error::Error;
use std::io;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use serde_json::json;

/// Trying again cannot help: to the dead letters.
const PERMANENT: u8 = 65;

#[derive(Deserialize)]
struct Order {
    order: u64,
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    cents: u64,
    count: u64,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let order: Order = match serde_json::from_reader(io::stdin().lock()) {
        Ok(order) => order,
        Err(error) => return Ok(refused(&error.to_string())),
    };
    if order.items.is_empty() {
        return Ok(refused(&format!("order {} has no items", order.order)));
    }
    eprintln!("attempt {} of job {}", std::env::var("HOURHAND_ATTEMPT")?, std::env::var("HOURHAND_ID")?);
    let mut random = [0_u8; 16];
    // An error that leaves `main` is exit code 1: another attempt.
    getrandom::fill(&mut random).map_err(|error| error.to_string())?;
    let receipt = json!({
        "order": order.order,
        "cents": order.items.iter().map(|item| item.cents * item.count).sum::<u64>(),
        "receipt": random.iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
        "issued_ms": SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64,
    });
    println!("{receipt}");
    Ok(ExitCode::SUCCESS)
}

/// Says why on stderr, whose last lines become the failure's message.
fn refused(why: &str) -> ExitCode {
    eprintln!("{why}");
    ExitCode::from(PERMANENT)
}
