package converge

import (
	"fmt"
	"strconv"
	"strings"
)

// NamePattern is the name pattern of slots. The last id is an index, or an index and a definition
// with an @ in between.
const NamePattern = "processes/{process_guid}/instances/{index}"

// NamesOf returns the common prefix of the names of a process's slots.
func NamesOf(guid string) string { return "processes/" + guid + "/instances/" }

// IndexName returns the name of an index of a process, without a definition.
func IndexName(guid string, index int) string { return NamesOf(guid) + strconv.Itoa(index) }

// Name returns the name of a slot. The definition that has the id of its process is left out: it is
// the only one of most processes, and older clients know no other.
func Name(guid string, k Key) string {
	if k.Definition == guid {
		return IndexName(guid, k.Index)
	}
	return IndexName(guid, k.Index) + "@" + k.Definition
}

// SplitName splits the name of a slot into its parts. It refuses any other spelling of a name, such
// as one with leading zeros.
func SplitName(name string) (guid string, k Key, err error) {
	guid, k, open, err := ParseName(name)
	// The definition that Name leaves out must not have a second name.
	if err == nil && !open && k.Definition == guid {
		err = nameError(name)
	}
	return guid, k, err
}

// ParseName splits a name in a request. open means that it names no definition; k then has the one
// with the id of the process. Unlike SplitName it accepts that id behind the index, too.
func ParseName(name string) (guid string, k Key, open bool, err error) {
	parts := strings.Split(name, "/")
	if len(parts) != 4 || parts[1] == "" {
		return "", Key{}, false, nameError(name)
	}
	text, definition, named := strings.Cut(parts[3], "@")
	index, err := strconv.Atoi(text)
	if err != nil || index < 0 || named && definition == "" || IndexName(parts[1], index) != strings.Join(append(parts[:3:3], text), "/") {
		return "", Key{}, false, nameError(name)
	}
	if !named {
		definition = parts[1]
	}
	return parts[1], Key{definition, index}, !named, nil
}

func nameError(name string) error {
	return fmt.Errorf("an instance is named %s, optionally with @ and the id of a definition, not %q", NamePattern, name)
}
