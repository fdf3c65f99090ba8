package client_test

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	"dbcontroller.dev/appclient/client"
	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
)

// A Config is checked before anything is sent: a token needs TLS, except on this machine.
func ExampleConfig_URLs() {
	urls, err := client.Config{Server: "controller-1:7090,controller-2:7090", CA: "/etc/shop/ca.crt", TokenFile: "/etc/shop/token"}.URLs()
	fmt.Println(urls, err)
	_, err = client.Config{Server: "http://controller-1:7090", TokenFile: "/etc/shop/token"}.URLs()
	fmt.Println(err != nil)
	// Output:
	// [https://controller-1:7090 https://controller-2:7090] <nil>
	// true
}

// A program asks a controller for the state of its deployment. Calls go to the first of the addresses
// that answers.
func ExampleOpen() {
	api, err := client.Open(client.Config{
		Server:    "controller-1:7090,controller-2:7090",
		CA:        "/etc/shop/ca.crt",
		TokenFile: "/etc/shop/token",
	})
	if err != nil {
		fmt.Println(err) // of a file, before anything is sent
		return
	}
	// A call that changes nothing may be sent again by itself.
	ctx := client.Repeatable(context.Background())
	d, err := api.GetDeployment(ctx, connect.NewRequest(&dbv1.GetDeploymentRequest{Name: "services/shop/deployments/main"}))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(d.Msg.GetCurrentVersion())
}
