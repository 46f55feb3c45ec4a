SELECT subscription, lane, epoch, owner FROM onceward_lane ORDER BY subscription, lane
