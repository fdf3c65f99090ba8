package secrets

import (
	"regexp"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/resource"
)

// Limits on client data. They are equal in both versions, so each version can show the other's
// data.
const (
	maxPayload  = 64 << 10
	maxLabels   = 64
	maxLabel    = 256          // bytes of a label's value
	maxOwner    = 256          // bytes of a part of the owner
	maxExpiry   = 253402300799 // Unix seconds; the end of the year 9999, as in Timestamp
	maxRotation = 3650         // days
)

// labelKey excludes dots and dollars from label keys. They have a meaning in the paths of masks and
// filters.
var labelKey = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)

// homeForm is the form of the name of a region, as the configuration has it.
var homeForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Name patterns of secrets in each version.
const (
	patternV1 = "projects/{project}/secrets/{secret}"
	patternV2 = "projects/{project}/regions/{region}/secrets/{secret}"
)

// Fields that a record omits if they are empty. A lens cannot convert an expiry of 0, split an
// empty owner or resolve an empty name, so it must never see them.
var (
	sparseV1 = []string{"expires_at", "owner", "replaces", "home", "move"}
	sparseV2 = []string{"owner_team", "owner_person", "replaces", "home", "move"}
)

// checkCommon checks the fields that both versions share.
func checkCommon(pattern string, payload []byte, labels map[string]string, replaces, home string) error {
	if home != "" && !homeForm.MatchString(home) {
		return listing.Invalid("home", "%q is no name of a region: it must match %s", home, homeForm)
	}
	if len(payload) > maxPayload {
		return listing.Invalid("payload", "has %d bytes, at most %d are allowed", len(payload), maxPayload)
	}
	if len(labels) > maxLabels {
		return listing.Invalid("labels", "has %d entries, at most %d are allowed", len(labels), maxLabels)
	}
	for key, value := range labels {
		if !labelKey.MatchString(key) {
			return listing.Invalid("labels", "the key %q must match %s", key, labelKey)
		}
		if len(value) > maxLabel {
			return listing.Invalid("labels."+key, "has %d bytes, at most %d are allowed", len(value), maxLabel)
		}
	}
	// The reference is optional. Only its form is checked: the other secret may be created later.
	if replaces == "" {
		return nil
	}
	return resource.CheckName("replaces", replaces, pattern)
}

// checkOwner checks one part of an owner. v1 joins both parts with a slash, so a part has none.
func checkOwner(field, part string) error {
	switch {
	case part == "":
		return listing.Invalid(field, "an owner has both a team and a person, and one is missing")
	case len(part) > maxOwner:
		return listing.Invalid(field, "a part has %d bytes, at most %d are allowed", len(part), maxOwner)
	case strings.ContainsAny(part, "/\x00"):
		return listing.Invalid(field, "%q must not contain '/' or NUL", part)
	}
	return nil
}

// checkExpiresAt checks a v1 expiry.
func checkExpiresAt(seconds int64) error {
	if seconds < 0 || seconds > maxExpiry {
		return listing.Invalid("expires_at", "is %d, must be 0 to %d, Unix seconds", seconds, maxExpiry)
	}
	return nil
}

// checkExpiry checks a v2 expiry. v1 has whole seconds only, so v2 accepts no others in v1's
// region.
func checkExpiry(at *timestamppb.Timestamp, region string) error {
	switch {
	case at == nil:
		return nil
	case at.CheckValid() != nil || at.GetSeconds() <= 0:
		return listing.Invalid("expire_time", "must be after 1970 and before 10000; leave it out for never")
	case at.GetNanos()%int32(time.Millisecond) != 0:
		return listing.Invalid("expire_time", "must be whole milliseconds")
	case at.GetNanos() != 0 && region == Region:
		return listing.Invalid("expire_time", "must be whole seconds in %s, where v1 shows it", Region)
	}
	return nil
}
