package bbs

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/resource"
	"dbcontroller.dev/transform"
)

// Limits on client data. They are equal in both versions, so each version can show the other's
// data. A process is written in one transaction with all its definitions, and migrated in one with
// all its instances as well. etcd allows 128 records in a transaction.
const (
	maxInstances   = 100                       // of a process
	maxName        = 256                       // bytes of guids and definition ids
	maxDefinitions = 100                       // of a process
	maxDefinition  = 128 << 10                 // bytes of a definition, encoded
	maxRoutes      = 128 << 10                 // bytes of all routes
	maxAnnotation  = 128 << 10                 // bytes
	maxTimeout     = 366 * 24 * 60 * 60 * 1000 // milliseconds
)

// anyProcess stands for all processes in a list of instances, so no process may have this guid.
const anyProcess = "-"

// pattern is the name pattern of processes.
const pattern = "{process_guid}"

// within narrows a list by the domain and prefix of its request, if it has them.
func within(req proto.Message) resource.Within {
	r, ok := req.(interface {
		GetDomain() string
		GetPrefix() string
	})
	if !ok {
		return resource.Within{}
	}
	// Without a domain in the request, the list covers all domains.
	in := resource.Within{Prefix: r.GetPrefix()}
	if r.GetDomain() != "" {
		in.Where = listing.Where(transform.Condition{Path: "domain", Op: transform.OpEqual, Values: []any{r.GetDomain()}})
	}
	return in
}

// tagText describes the current tag to a client that expected another one.
func tagText(t interface {
	GetEpoch() string
	GetIndex() uint32
}) string {
	return fmt.Sprintf("tag is %s/%d", t.GetEpoch(), t.GetIndex())
}

// checkName checks one part of a key.
func checkName(field, name string) error {
	if err := nameError(name); err != nil {
		return listing.Invalid(field, "%s", err)
	}
	return nil
}

func nameError(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("is missing")
	case len(name) > maxName:
		return fmt.Errorf("has %d bytes, at most %d are allowed", len(name), maxName)
	case strings.ContainsAny(name, "/\x00"):
		return fmt.Errorf("%q must not contain '/' or NUL", name)
	}
	return nil
}

// identity holds the fields that both versions of a process share.
type identity interface {
	GetProcessGuid() string
	GetDomain() string
	GetInstances() int32
	GetRoutes() map[string]string
	GetAnnotation() string
	GetRolloutTimeoutMs() int64
	GetFallBackAfterMs() int64
}

// checkIdentity checks the shared fields of a new process.
func checkIdentity(p identity) error {
	if err := checkName("process_guid", p.GetProcessGuid()); err != nil {
		return err
	}
	if p.GetProcessGuid() == anyProcess {
		return listing.Invalid("process_guid", "must not be %q, which stands for all processes in names of instances", anyProcess)
	}
	if p.GetDomain() == "" {
		return listing.Invalid("domain", "is missing")
	}
	return checkMutable(p, p.GetRoutes())
}

// mutable holds the fields that an update can also set, besides the routes.
type mutable interface {
	GetInstances() int32
	GetAnnotation() string
	GetRolloutTimeoutMs() int64
	GetFallBackAfterMs() int64
}

// checkMutable checks the fields that an update can also set.
func checkMutable(m mutable, routes map[string]string) error {
	instances, annotation := m.GetInstances(), m.GetAnnotation()
	for field, ms := range map[string]int64{"rollout_timeout_ms": m.GetRolloutTimeoutMs(), "fall_back_after_ms": m.GetFallBackAfterMs()} {
		if ms < 0 || ms > maxTimeout {
			return listing.Invalid(field, "is %d, must be from 0 to %d", ms, int64(maxTimeout))
		}
	}
	if instances < 0 || instances > maxInstances {
		return listing.Invalid("instances", "is %d, must be from 0 to %d", instances, maxInstances)
	}
	size := 0
	// BSON keys cannot contain NUL, and the name of a route is a key.
	for name, route := range routes {
		if strings.ContainsRune(name, 0) {
			return listing.Invalid("routes", "the name of a route holds a NUL byte")
		}
		size += len(name) + len(route)
	}
	if size > maxRoutes {
		return listing.Invalid("routes", "have %d bytes, at most %d are allowed", size, maxRoutes)
	}
	if n := len(annotation); n > maxAnnotation {
		return listing.Invalid("annotation", "has %d bytes, at most %d are allowed", n, maxAnnotation)
	}
	return nil
}

// checkDefinition checks a definition of either version.
func checkDefinition(field string, definition proto.Message) error {
	// A missing definition arrives as a typed nil pointer.
	if !definition.ProtoReflect().IsValid() {
		return listing.Invalid(field, "is missing")
	}
	if n := proto.Size(definition); n > maxDefinition {
		return listing.Invalid(field, "has %d bytes, at most %d are allowed", n, maxDefinition)
	}
	return nil
}

// newEpoch returns a random epoch for a new process.
func newEpoch() string {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic(err) // crypto/rand never fails
	}
	return hex.EncodeToString(b[:])
}
