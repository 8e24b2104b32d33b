"""The store on PostgreSQL, shared by any number of processes and machines."""
