package propose

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// plain matches text that YAML reads as a string without quotes.
var plain = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)

// quote formats the name of a field or kind.
func quote(s string) string {
	// YAML 1.1 reads these words as booleans or null.
	switch strings.ToLower(s) {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		return literal(s)
	}
	if plain.MatchString(s) {
		return s
	}
	return literal(s)
}

func quoted(all []string) []string {
	out := make([]string, len(all))
	for i, s := range all {
		out[i] = quote(s)
	}
	return out
}

// literal formats a string so that YAML reads it as a string.
func literal(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return strconv.Quote(s)
	}
	return string(b)
}

// scalar formats a value for the operation add. ok is false for other types.
func scalar(v bson.RawValue) (string, bool) {
	switch v.Type { //nolint:exhaustive // YAML has no other ones
	case bson.TypeString:
		return literal(textOf(v)), true
	case bson.TypeInt32:
		return strconv.Itoa(int(v.Int32())), true
	case bson.TypeBoolean:
		return strconv.FormatBool(v.Boolean()), true
	case bson.TypeNull:
		return "null", true
	}
	return "", false
}
