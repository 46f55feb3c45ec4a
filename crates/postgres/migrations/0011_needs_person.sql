-- What stands still may do so because the other side needs a person.

alter table onceward.pauses drop constraint pauses_because_check;
alter table onceward.pauses
    add constraint pauses_because_check check (because in ('breaker', 'rate-window', 'person'));
