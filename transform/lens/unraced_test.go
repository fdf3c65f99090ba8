//go:build !race

package lens

const raced = false
