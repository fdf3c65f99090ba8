// Package library is a sample of the library use of this project: a service of libraries and their
// books, in two versions. One resource changes its name, and the references to it follow. The other
// merges two records into one. A test limits the number of lines of everything written for it.
//
// It is not for users and may change with any version.
package library

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev"
)

// Service is the service for its server and its controller.
var Service = dbcontroller.Service{
	Name: "library",
	Versions: []dbcontroller.Version{
		{Name: "v1", APIs: []protoreflect.ServiceDescriptor{apiV1}, Mount: mountV1, Indexes: map[string][]string{"books": {"library"}}},
		{Name: "v2", APIs: []protoreflect.ServiceDescriptor{apiV2}, Mount: mountV2, Transformers: transformers(), Indexes: map[string][]string{"books": {"branch"}}},
	},
}
