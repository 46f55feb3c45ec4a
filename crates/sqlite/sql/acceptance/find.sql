SELECT digest, answer FROM onceward_acceptance WHERE caller = ?1 AND key = ?2
