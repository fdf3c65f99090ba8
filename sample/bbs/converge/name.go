package converge

import (
	"fmt"
	"strconv"
	"strings"
)

// NamePattern is how the slots of processes are named.
const NamePattern = "processes/{process_guid}/instances/{index}"

// NamesOf is what the names of a process's slots begin with.
func NamesOf(guid string) string { return "processes/" + guid + "/instances/" }

// Name is the name of a slot.
func Name(guid string, index int) string { return NamesOf(guid) + strconv.Itoa(index) }

// SplitName takes the name of a slot apart, in the one form that it has.
func SplitName(name string) (guid string, index int, err error) {
	parts := strings.Split(name, "/")
	if len(parts) == 4 && parts[1] != "" {
		if index, err := strconv.Atoi(parts[3]); err == nil && index >= 0 && name == Name(parts[1], index) {
			return parts[1], index, nil
		}
	}
	return "", 0, fmt.Errorf("an instance is named %s, not %q", NamePattern, name)
}
