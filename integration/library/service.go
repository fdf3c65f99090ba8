// Package library is a service of libraries and their books in two versions, as somebody
// writes it who uses this project as a library: two resources, of which one changes its
// name, and with it the references to it, and one becomes a single record of two. A test
// bounds all that is written for it, messages, programs and configuration included.
//
// It is not for users and may change with any version.
package library

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev"
)

// Service is the service, for its server and its controller.
var Service = dbcontroller.Service{
	Name: "library",
	Versions: []dbcontroller.Version{
		{Name: "v1", APIs: []protoreflect.ServiceDescriptor{apiV1}, Mount: mountV1},
		{Name: "v2", APIs: []protoreflect.ServiceDescriptor{apiV2}, Mount: mountV2, Transformers: transformers()},
	},
}
