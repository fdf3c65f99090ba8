//go:build race

package integration_test

const hasRaceDetector = true
