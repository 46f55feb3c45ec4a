-- Without waiting: whoever is just acting on one of them knows better.
select s.subscription from onceward.subscriptions s
where s.subscription = any ($1::text[])
order by s.subscription
for no key update skip locked
