package task

import (
	"strings"

	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/examples/bbs/outbound"
	"dbcontroller.dev/resource"
	"dbcontroller.dev/transform"
)

// Limits on client data, equal in both versions.
const (
	maxName       = 256       // bytes of guids, domains and cell ids
	maxDefinition = 128 << 10 // bytes of a definition, encoded
	maxResult     = 32 << 10  // bytes of a result; a longer one is refused
	maxReason     = 1024      // bytes of a reason; a longer one is cut
)

func checkName(field, name string) error {
	switch {
	case name == "":
		return listing.Invalid(field, "is missing")
	case len(name) > maxName:
		return listing.Invalid(field, "has %d bytes, at most %d are allowed", len(name), maxName)
	case strings.ContainsAny(name, "/\x00"):
		return listing.Invalid(field, "must not contain '/' or NUL")
	}
	return nil
}

// definition is a definition of either version.
type definition interface {
	proto.Message
	GetCompletionCallbackUrl() string
}

// checkNew checks a new task of either version.
func checkNew(domain string, d definition) error {
	if err := checkName("domain", domain); err != nil {
		return err
	}
	// A missing definition arrives as a typed nil pointer.
	if !d.ProtoReflect().IsValid() {
		return listing.Invalid("definition", "is missing")
	}
	if n := proto.Size(d); n > maxDefinition {
		return listing.Invalid("definition", "has %d bytes, at most %d are allowed", n, maxDefinition)
	}
	if u := d.GetCompletionCallbackUrl(); u != "" {
		if err := outbound.URLError(u); err != nil {
			return listing.Invalid("definition.completion_callback_url", "%s", err)
		}
	}
	return nil
}

// within narrows a list by the domain and the cell of its request.
func within(req proto.Message) resource.Within {
	r, ok := req.(interface {
		GetDomain() string
		GetCellId() string
	})
	if !ok {
		return resource.Within{}
	}
	var where listing.Filter
	for _, c := range []struct{ field, value string }{{"domain", r.GetDomain()}, {"cell_id", r.GetCellId()}} {
		if c.value != "" {
			where.And = append(where.And, listing.Where(transform.Condition{Path: c.field, Op: transform.OpEqual, Values: []any{c.value}}))
		}
	}
	return resource.Within{Where: where}
}

// bounded returns the part of a reason that is stored.
func bounded(reason string) string {
	// A cut in the middle of a character would not be valid in a proto string.
	return strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "")
}
