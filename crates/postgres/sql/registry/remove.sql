with deferrals as (
    delete from onceward.deferrals where subscription = $1::text
), lanes as (
    delete from onceward.lanes where subscription = $1::text
), positions as (
    delete from onceward.positions where subscription = $1::text
), pauses as (
    delete from onceward.pauses where subscription = $1::text)
delete from onceward.subscriptions where subscription = $1::text
