select position as text, false as is_record from onceward.lanes
union all
select spans, true from onceward.positions
