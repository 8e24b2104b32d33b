# noqa: A005 - named like the folder that these test
