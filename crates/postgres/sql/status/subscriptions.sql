select subscription from onceward.subscriptions order by subscription
