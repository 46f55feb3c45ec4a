select subscription, lane, epoch, owner from onceward.lanes order by subscription, lane
