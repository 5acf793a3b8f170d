//go:build race

package explore

const race = true
