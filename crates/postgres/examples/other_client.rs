//! Appending with a client other than `sqlx`: the statement and its parameters come from Onceward,
//! the transaction and the business row are the service's own.
//!
//! Run with a connection string: `cargo run --example other_client -- 'host=localhost user=me dbname=orders'`

use std::error::Error;

use onceward_core::{Envelope, Payload};
use onceward_postgres::{Parameter, append_statement};
use tokio_postgres::types::ToSql;
use tokio_postgres::{NoTls, Transaction};

/// Appends a message in the caller's transaction.
pub async fn append(
    transaction: &Transaction<'_>,
    envelope: &Envelope,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let (statement, parameters) = append_statement(envelope)?;
    let parameters = parameters
        .iter()
        .map(as_sql)
        .collect::<Result<Vec<_>, _>>()?;
    transaction.execute(statement, &parameters).await?;
    Ok(())
}

fn as_sql(parameter: &Parameter) -> Result<&(dyn ToSql + Sync), &'static str> {
    Ok(match parameter {
        Parameter::Text(value) => value,
        Parameter::SmallInt(value) => value,
        Parameter::Integer(value) => value,
        Parameter::BigInt(value) => value,
        Parameter::Bytea(value) => value,
        _ => return Err("a type of parameter that this program does not know yet"),
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let target = std::env::args().nth(1).ok_or("give a connection string")?;
    let (mut client, connection) = tokio_postgres::connect(&target, NoTls).await?;
    tokio::spawn(connection);
    let transaction = client.transaction().await?;
    // ... the business row, in the same transaction ...
    let payload = Payload::Json("{\"order\": \"ord-731\"}".into());
    let accepted = Envelope::new("m-1", "order", "ord-731", "order.accepted", payload);
    append(&transaction, &accepted).await?;
    transaction.commit().await?;
    Ok(())
}
