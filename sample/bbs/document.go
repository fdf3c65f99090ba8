package bbs

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// lrpDoc reads a desired LRP or an LRP deployment. Documents are written as bson.D, by
// changing what was read, so that unknown fields stay.
type lrpDoc struct {
	ProcessGUID string            `bson:"process_guid"`
	Domain      string            `bson:"domain"`
	Instances   int32             `bson:"instances"`
	Routes      map[string]string `bson:"routes"`
	Annotation  string            `bson:"annotation"`
	Tag         tagDoc            `bson:"modification_tag"`
	Definition  definitionDoc     `bson:"definition"`            // v1
	Active      string            `bson:"active_definition_id"`  // v2
	Healthy     string            `bson:"healthy_definition_id"` // v2
}

type tagDoc struct {
	Epoch string `bson:"epoch"`
	Index int64  `bson:"index"`
}

type definitionDoc struct {
	RootFS         string     `bson:"rootfs"`
	Env            []envDoc   `bson:"env"`
	Action         *actionDoc `bson:"action,omitempty"`
	MemoryMB       int32      `bson:"memory_mb"`
	DiskMB         int32      `bson:"disk_mb"`
	Ports          []int64    `bson:"ports"`
	CPUWeight      int32      `bson:"cpu_weight"`
	Privileged     bool       `bson:"privileged"`
	LogGUID        string     `bson:"log_guid"`
	StartTimeoutMS int64      `bson:"start_timeout_ms"`
}

type envDoc struct {
	Name  string `bson:"name"`
	Value string `bson:"value"`
}

type actionDoc struct {
	Path string   `bson:"path"`
	Args []string `bson:"args"`
	User string   `bson:"user"`
	Dir  string   `bson:"dir"`
}

// newTag is the tag of a new process.
func newTag() tagDoc {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic(err) // crypto/rand never fails
	}
	return tagDoc{Epoch: hex.EncodeToString(b[:])}
}

// routesDoc puts the routes in order, so that equal routes are equal bytes.
func routesDoc(routes map[string]string) bson.D {
	d := bson.D{}
	for _, name := range slices.Sorted(maps.Keys(routes)) {
		d = append(d, bson.E{Key: name, Value: routes[name]})
	}
	return d
}

// identity are the fields that both versions have, in the order in which they are stored.
func identity(guid, domain string, instances int32, routes map[string]string, annotation string, tag tagDoc) bson.D {
	return bson.D{
		{Key: fieldID, Value: guid}, {Key: fieldGUID, Value: guid}, {Key: "domain", Value: domain}, {Key: "instances", Value: instances},
		{Key: "routes", Value: routesDoc(routes)}, {Key: "annotation", Value: annotation}, {Key: fieldTag, Value: tag},
	}
}

// set changes a field in its place, or adds it.
func set(d bson.D, name string, value any) bson.D {
	for i := range d {
		if d[i].Key == name {
			d[i].Value = value
			return d
		}
	}
	return append(d, bson.E{Key: name, Value: value})
}

// errStored: what is stored cannot be read; a person must look.
var errStored = errors.New("stored record is malformed")

func readLRP(doc bson.Raw) (lrpDoc, error) {
	var d lrpDoc
	if err := bson.Unmarshal(doc, &d); err != nil {
		return lrpDoc{}, fmt.Errorf("%w: %w", errStored, err)
	}
	return d, nil
}

func readDefinition(doc bson.Raw) (definitionDoc, error) {
	var d struct {
		Definition definitionDoc `bson:"definition"`
	}
	if err := bson.Unmarshal(doc, &d); err != nil {
		return definitionDoc{}, fmt.Errorf("%w: %w", errStored, err)
	}
	return d.Definition, nil
}

// encode marshals a document that the handlers made.
func encode(doc any) (bson.Raw, error) {
	b, err := bson.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	return b, nil
}

func invalid(format string, args ...any) error {
	return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf(format, args...))
}

// maxName bounds guids and definition ids.
const maxName = 256

// checkName checks a part of a key.
func checkName(what, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%s is empty", what)
	case len(name) > maxName:
		return fmt.Errorf("%s has %d bytes, at most %d are allowed", what, len(name), maxName)
	case strings.ContainsAny(name, "/\x00"):
		return fmt.Errorf("%s %q must not contain '/' or NUL", what, name)
	}
	return nil
}

// checkIdentity checks what a client gives for both versions.
func checkIdentity(guid, domain string, instances int32, routes map[string]string) error {
	if err := checkName("process_guid", guid); err != nil {
		return invalid("%w", err)
	}
	if domain == "" {
		return invalid("domain is empty")
	}
	return checkMutable(&instances, routes)
}

func checkMutable(instances *int32, routes map[string]string) error {
	if instances != nil && *instances < 0 {
		return invalid("instances is %d, must be 0 or more", *instances)
	}
	for name := range routes {
		if strings.ContainsRune(name, 0) {
			return invalid("the name of a route contains NUL")
		}
	}
	return nil
}
