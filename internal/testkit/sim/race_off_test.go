//go:build !race

package sim_test

const pace = 1
