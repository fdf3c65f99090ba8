package shards

import (
	"slices"
	"strconv"
	"strings"
)

// Ranges returns shards as text for people, in order and each once: "0-12, 17, 20-31".
func Ranges(list []int) string {
	// The caller's slice stays as it is.
	list = slices.Compact(slices.Sorted(slices.Values(list)))
	var parts []string
	for i := 0; i < len(list); {
		end := i
		for end+1 < len(list) && list[end+1] == list[end]+1 {
			end++
		}
		switch end - i {
		case 0:
			parts = append(parts, strconv.Itoa(list[i]))
		case 1:
			parts = append(parts, strconv.Itoa(list[i]), strconv.Itoa(list[end]))
		default:
			parts = append(parts, strconv.Itoa(list[i])+"-"+strconv.Itoa(list[end]))
		}
		i = end + 1
	}
	return strings.Join(parts, ", ")
}
