package drivertest

import "slices"

// Cases returns the cases of the suite, the simple ones first.
func Cases() []Case {
	return slices.Concat(
		exclusionCases, endedCases, expiryCases, releaseCases, tokenCases,
		queueCases, absentCases, watchingCases, outageCases, sharedCases,
		weightCases, resizeCases, setCases, rateCases, nameCases,
		minimumCases, manyCases, listCases, traceCases, breakCases,
		breakOwnerCases, adoptCases, lossCases, closeCases, recordCases, recordApartCases,
	)
}
