// Package regions is the sample service secrets in several regions: each region owns the secrets whose
// field home names it, and shows read-only copies of the others. It runs in both versions, and each
// region upgrades by itself.
//
// It is not for users and may change with any version.
package regions

import (
	"net/http"

	"connectrpc.com/connect"

	"dbcontroller.dev"
	"dbcontroller.dev/examples/secrets"
)

// Service returns the service.
func Service() dbcontroller.Service {
	apis := secrets.Services()
	return dbcontroller.Service{
		Name: "secrets",
		Versions: []dbcontroller.Version{
			{Name: secrets.V1, APIs: apis[:1], Regions: secrets.RegionsV1(), Mount: func(mux *http.ServeMux, data dbcontroller.Store, opts ...connect.HandlerOption) {
				mux.Handle(secrets.NativeV1(data, opts...))
			}},
			{Name: secrets.V2, APIs: apis[1:], Regions: secrets.RegionsV2(), Transformers: secrets.Specs(), Mount: func(mux *http.ServeMux, data dbcontroller.Store, opts ...connect.HandlerOption) {
				mux.Handle(secrets.NativeV2(data, opts...))
			}},
		},
	}
}
