package dbcontroller_test

import "dbcontroller.dev"

// Each is the main function of a program of its own.
func Example() {
	service := dbcontroller.Service{Name: "tasks"}
	dbcontroller.Serve(service)      // a server: as many as you like
	dbcontroller.Controller(service) // a controller, with all commands of an operator
}
