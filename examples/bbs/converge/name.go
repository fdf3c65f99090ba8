package converge

import (
	"fmt"
	"strconv"
	"strings"
)

// NamePattern is the name pattern of slots.
const NamePattern = "processes/{process_guid}/instances/{index}"

// NamesOf returns the common prefix of the names of a process's slots.
func NamesOf(guid string) string { return "processes/" + guid + "/instances/" }

// Name returns the name of a slot.
func Name(guid string, index int) string { return NamesOf(guid) + strconv.Itoa(index) }

// SplitName splits the name of a slot into its parts. It refuses any other spelling of a name, such
// as one with leading zeros.
func SplitName(name string) (guid string, index int, err error) {
	parts := strings.Split(name, "/")
	if len(parts) == 4 && parts[1] != "" {
		if index, err := strconv.Atoi(parts[3]); err == nil && index >= 0 && name == Name(parts[1], index) {
			return parts[1], index, nil
		}
	}
	return "", 0, fmt.Errorf("an instance is named %s, not %q", NamePattern, name)
}
